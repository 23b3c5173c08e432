"""What Tiphys asks others: the API server in raw JSON (a typed model per object costs seventy times more) and Prometheus."""
