"""What requests may cost: ceilings, the ledger of a day, and how much of a pass they allow."""
