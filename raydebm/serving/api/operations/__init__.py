"""Health, ceilings, live figures, and the options of this installation."""
