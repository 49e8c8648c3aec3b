"""Certainty of a selection: signals, their calibration, and the gain of abstaining by them."""
