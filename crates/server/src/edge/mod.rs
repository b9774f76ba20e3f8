//! The boxes' own URLs. Owns which request goes to which program in which box, and what people see while it is not there.

pub mod forward;
mod pool;
