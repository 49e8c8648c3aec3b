"""One evaluation: every number of a report, as data."""
