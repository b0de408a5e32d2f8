//! What offices and workers do to each other.
