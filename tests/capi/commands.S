/* Places the model and the grammar of its calls in flash. */
    .section .rodata.model, "a"
    .global model_file
    .global model_file_end
    .global calls
    .global calls_end
    .balign 64
model_file:
    .incbin "commands.gguf"
model_file_end:
    .balign 4
calls:
    .incbin "commands.table"
calls_end:
    .section .note.GNU-stack, "", %progbits
