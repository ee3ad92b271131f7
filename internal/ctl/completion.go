package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdistcc/rdistcc/internal/reason"
)

func (c *ctl) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Long: "Prints a completion script for a shell. It completes rdistcc's own commands; after the name of a compiler\n" +
			"it leaves completion to that compiler's script.",
		Example: "  source <(rdistcc completion bash)\n" +
			"  rdistcc completion zsh > ~/.zfunc/_rdistcc\n" +
			"  rdistcc completion fish > ~/.config/fish/completions/rdistcc.fish",
		Args:      one("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			script, err := completion(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			return c.print([]byte(script))
		},
	}
}

// completion generates the script from the command tree. cobra's own scripts call the program at each key,
// but `rdistcc __complete` would be a compiler's name.
func completion(root *cobra.Command, shell string) (string, error) {
	var words, cases []string
	var fish strings.Builder
	for _, sub := range root.Commands() {
		if sub.Hidden {
			continue
		}
		words = append(words, sub.Name())
		fmt.Fprintf(&fish, "complete -c rdistcc -n __fish_use_subcommand -a %s -d %s\n", sub.Name(), quoteShell(sub.Short))
		rest := append([]string{"--help"}, sub.ValidArgs...)
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				rest = append(rest, "--"+f.Name)
			}
		})
		cases = append(cases, fmt.Sprintf("%s) opts=%s ;;", sub.Name(), quoteShell(strings.Join(rest, " "))))
		for _, w := range rest {
			fmt.Fprintf(&fish, "complete -c rdistcc -n '__fish_seen_subcommand_from %s' -a %s\n", sub.Name(), quoteShell(w))
		}
	}
	own := quoteShell(strings.Join(append(words, "--help", "--version", "--show-hosts", "-j"), " "))
	all := strings.Join(cases, "\n    ")
	switch shell {
	case "bash":
		return fmt.Sprintf(bashScript, own, all), nil
	case "zsh":
		return fmt.Sprintf(zshScript, own, all), nil
	case "fish":
		return fishHead + fish.String(), nil
	}
	return "", failf(reason.ExitArguments, "no completion for %q: there are bash, zsh and fish", shell)
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

const bashScript = `# bash completion of rdistcc
_rdistcc() {
  local cur=${COMP_WORDS[COMP_CWORD]} opts=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W %s -- "$cur") $(compgen -c -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
    %s
    *)
      if declare -F _command_offset >/dev/null; then _command_offset 1; else COMPREPLY=($(compgen -f -- "$cur")); fi
      return ;;
  esac
  case ${COMP_WORDS[1]} in
    drain|undrain|doctor|logs|toolchain) opts="$opts $(${COMP_WORDS[0]} --show-hosts 2>/dev/null | sed 's/[\/,].*//')" ;;
  esac
  COMPREPLY=($(compgen -W "$opts" -- "$cur"))
  case ${COMP_WORDS[1]} in
    install-links|certs) COMPREPLY+=($(compgen -d -- "$cur")) ;;
    why) COMPREPLY+=($(compgen -f -- "$cur")) ;;
    build) COMPREPLY+=($(compgen -c -f -- "$cur")) ;;
  esac
}
complete -o filenames -F _rdistcc rdistcc
`

const zshScript = `#compdef rdistcc
local own=%s opts=
if (( CURRENT == 2 )); then
  compadd -- ${=own}
  _command_names -e
  return
fi
case ${words[2]} in
    %s
    *) shift words; (( CURRENT-- )); _normal; return ;;
esac
case ${words[2]} in
    drain|undrain|doctor|logs|toolchain) opts="$opts ${(f)"$(${words[1]} --show-hosts 2>/dev/null | sed 's/[\/,].*//')"}" ;;
    install-links|certs) _files -/ ;;
    why) _files ;;
    build) shift 2 words; (( CURRENT -= 2 )); _normal; return ;;
esac
compadd -- ${=opts}
`

const fishHead = `# fish completion of rdistcc
complete -c rdistcc -n __fish_use_subcommand -a '(__fish_complete_command)'
complete -c rdistcc -n __fish_use_subcommand -l help -l version -l show-hosts
complete -c rdistcc -n '__fish_seen_subcommand_from build' -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c rdistcc -n '__fish_seen_subcommand_from drain undrain doctor logs toolchain' -f -a "(rdistcc --show-hosts 2>/dev/null | string replace -r '[/,].*' '')"
`
