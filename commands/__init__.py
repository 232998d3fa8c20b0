"""The `scribe` command: a module a noun. Commands speak to people; what they do is done in the rooms below."""
