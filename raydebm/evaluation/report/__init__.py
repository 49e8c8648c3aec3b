"""An evaluation as tables, figures, Markdown and HTML."""
