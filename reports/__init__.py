"""Pages and pictures made out of records: the report, the table of constraints, and their statistics."""
