"""Weights of the papers' own rows and of further training seeds, for tables and for `tiphys model ship NAME`: no image carries them."""
