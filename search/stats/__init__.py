"""A seed's record; counts, rates and intervals of records. Numbers in, numbers out."""
