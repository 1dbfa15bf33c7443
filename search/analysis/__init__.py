"""Questions asked of the records: data frames, tables, the Pareto front, reports and pictures."""
