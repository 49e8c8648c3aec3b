"""Formatting of an evaluation: tables, figures, Markdown and HTML."""
