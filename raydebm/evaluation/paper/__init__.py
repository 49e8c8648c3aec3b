"""The paper's tables with measured values."""
