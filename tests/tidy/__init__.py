"""The repository checks itself: purity, sizes, mirror, leftovers, links."""
