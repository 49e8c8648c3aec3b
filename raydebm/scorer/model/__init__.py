"""The network: a frozen backbone, low-rank adapters, and energy heads."""
