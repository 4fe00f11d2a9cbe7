//! Forward multipliers on any tree, base shapes, optimizer groups and the coordinate check.

mod attach;
mod base;
mod coordinate;
mod exact;
mod goldens;
mod nano;
mod optimizer;
