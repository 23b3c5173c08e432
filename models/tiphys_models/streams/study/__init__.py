"""`tiphys bench binding`: static and learned policies on the same streams, over edge and cloud."""
