"""The studies that come with compression: YAML, one file a question."""
