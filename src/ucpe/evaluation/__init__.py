"""Measures camera control of any videos: rectification, estimators, metrics, protocols and the report."""
