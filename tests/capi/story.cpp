// Continues a text with the most probable tokens: story MODEL TEXT COUNT.
#include <arenite.hpp>
#include <iostream>

int main(int, char **words) try {
    arenite::Model model{std::string(words[1])};
    arenite_options options = arenite_options_default();
    options.context = 256;
    arenite::Session session(model, options);
    session.read(model.tokenize(words[2]));
    arenite_params params = arenite_params_default();
    params.temperature = 0;
    std::cout << words[2];
    session.generate(std::stoul(words[3]), [](std::string_view text) { std::cout << text; }, params);
    std::cout << '\n';
    // An error is an exception with the message.
    try {
        arenite::Model none(std::vector<std::uint8_t>{1, 2, 3});
        return 1;
    } catch (const arenite::Error &error) {
        std::cerr << error.what() << '\n';
    }
    try {
        arenite::Model directory(std::string("/"));
        return 1;
    } catch (const arenite::Error &error) {
        std::cerr << error.what() << '\n';
    }
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
