"""Function platforms that report idle instances in a way of their own, told to Prometheus in ours."""
