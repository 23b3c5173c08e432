"""Selectors: which candidate plans the next interval; serving part, numpy only."""
