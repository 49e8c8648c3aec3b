"""The paper's tables, filled with what was measured here."""
