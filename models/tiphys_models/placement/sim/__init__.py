"""The simulated FaaS cluster that trains and judges placement policies."""
