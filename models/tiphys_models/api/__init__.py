"""The custom resources: their pydantic models are the one source of schema, routing precedence and reasons."""
