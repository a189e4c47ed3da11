//! Signatures of updates: ed25519 (RFC 8032). The program has the public key; the private one stays with who builds updates.

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha512};

use crate::slots::Head;

/// The 32 bytes of the public key.
static KEY: &[u8; 32] = include_bytes!(env!("ARENITE_UPDATE_KEY"));

/// Returns true if the key's owner has signed this version of this model. Signed are the version and the size, four bytes
/// each with the lowest first, and the model's SHA-512.
#[inline(never)]
pub fn is_valid(head: &Head, file: &[u8]) -> bool {
    let parts = head.version.to_le_bytes().into_iter().chain(head.bytes.to_le_bytes()).chain(Sha512::digest(file));
    let mut message = [0; 72];
    message.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    let signature = Signature::from_bytes(&head.signature);
    VerifyingKey::from_bytes(KEY).is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
}
