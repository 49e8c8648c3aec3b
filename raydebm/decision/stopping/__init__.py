"""One stopping rule for sampling answers to a problem, *settled*, used live (``sampling.waves``) and in generation
(``wave_schedule``). The caller samples, waits and cancels."""
