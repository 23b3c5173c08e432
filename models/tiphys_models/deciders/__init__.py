"""What packages of others build deciders with: names that stay where they are. See docs/your-own-policy.md."""
