"""The report: tables in the paper's layout, the paper's numbers as quotes, a page with everything."""
