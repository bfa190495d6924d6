# complete.zsh DIRECTORY WORDS: types WORDS and a tab into an interactive zsh with the completions of DIRECTORY, and prints the terminal's text.
zmodload zsh/zpty
export TERM=dumb
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D; print READ\Y"
until [[ $line == *READY* ]]; do zpty -r shell line || exit 1; done
# The shell handles the keys in order: the completion, then the beginning of the line, then a command that prints the line.
zpty -w -n shell "$2"$'\t\x01print -r -- \nprint DON\E\n'
until [[ $line == *DONE* ]]; do zpty -r shell line || exit 1; print -rn -- "$line"; done
