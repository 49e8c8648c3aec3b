"""When to stop sampling answers to one problem: one rule, *settled*, live (``sampling.waves``) and in generation
(``wave_schedule``). Nothing here samples, waits or cancels: the caller does."""
