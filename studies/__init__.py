"""The studies that come with the package: YAML, one file a question."""
