"""Camera estimators, one file each, behind two small protocols."""
