//! The guide: how the crate works, for newcomers. Every page has code that runs as a test.
//!
//! 1. [A model of your own](a_model_of_your_own): from a folder that transformers saved to a story on an emulated board.
//! 2. [Where things are](where_things_are): the whole in one picture, and the files to change for an addition.
//! 3. [From a file to a token](from_a_file_to_a_token): the main path through `src/`.
//! 4. [Memory and the plan](memory_and_the_plan): how much memory is needed, and why it is known in advance.
//! 5. [A quantized dot product](a_quantized_dot_product): one operation, from scalar code to AVX-512 and SMLAD.
//! 6. [Why the bits are the same](why_the_bits_are_the_same): on every machine, with any number of threads.
//! 7. [Adding a family](adding_a_family) of architectures.
//! 8. [Adding a block format](adding_a_block_format) for weights.
//! 9. [A model on a board](a_model_on_a_board): text generation on a microcontroller, step by step.
//! 10. [A product on a board](a_product_on_a_board): from the training of a model to its update in the field.
//! 11. [A decision on a board](a_decision_on_a_board): a text to one of several answers, without generating text.
//! 12. [Reading a profile](reading_a_profile): where the time of a token goes.
//! 13. [Errors](what_can_go_wrong): every error message, and how the command line handles system failures.
//! 14. [Conversations](conversations): thoughts and function calls, family by family.
//! 15. [Speech to text](speech_to_text): from sound samples to text.
//! 16. [Drafts](drafts): tokens that are guessed and verified together.
//! 17. Pictures (with the feature `vision`): a language model that reads rows of an encoder in place of tokens.
//! 18. [Supported models](what_works): architectures, weight types, tokenizers.

macro_rules! pages {
    ($($(#[$cfg:meta])? $name:ident)*) => {
        $(
            $(#[$cfg])?
            #[doc = include_str!(concat!(stringify!($name), ".md"))]
            pub mod $name {}
        )*
    };
}

pages! {
    a_model_of_your_own
    where_things_are
    from_a_file_to_a_token
    memory_and_the_plan
    a_quantized_dot_product
    why_the_bits_are_the_same
    adding_a_family
    adding_a_block_format
    a_model_on_a_board
    a_product_on_a_board
    a_decision_on_a_board
    reading_a_profile
    what_can_go_wrong
    conversations
    speech_to_text
    drafts
    #[cfg(feature = "vision")]
    pictures
    what_works
}
