//! Code that several test programs share. No program uses all of the code.
#![allow(dead_code)]

pub mod apart;
pub mod encoders;
pub mod families;
pub mod fixture;
pub mod fixtures;
pub mod gguf;
pub mod others;
pub mod peers;
pub mod run;
pub mod tiny;
pub mod unwritten;
pub mod variants;
pub mod vectors;
pub mod workers;
