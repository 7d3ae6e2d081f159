"""Everything that shows Tidewire keeps its promises."""
