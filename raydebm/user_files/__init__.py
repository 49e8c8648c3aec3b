"""Files that a user names: what is wrong with one is one clear error."""
