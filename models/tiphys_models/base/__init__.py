"""What everything stands on: errors, clock, quantities, selectors, arrays, random streams, small networks."""
