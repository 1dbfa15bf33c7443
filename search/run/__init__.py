"""One run of a study: planner, workers, records, display."""
