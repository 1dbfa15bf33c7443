"""Pages that show a model at work, each one file that needs nothing from elsewhere."""
