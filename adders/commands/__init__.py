"""Commands on adders. Each is imported when it is called."""
