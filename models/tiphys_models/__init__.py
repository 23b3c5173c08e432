"""Everything Tiphys decides with: domain types, features, policies, artifacts and the CRD models. No process of its own."""
