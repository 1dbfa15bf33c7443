"""Questions asked of the records: data frames, files of records, the Pareto front, lineages."""
