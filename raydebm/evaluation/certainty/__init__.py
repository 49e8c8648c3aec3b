"""How sure a selection is: signals, their calibration, and what abstaining by them brings."""
