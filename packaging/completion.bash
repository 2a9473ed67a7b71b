# SPDX-License-Identifier: BSD-2-Clause
#
# Completion of verbena and verbs-conformance in bash. Commands, options and their values are those that the program
# names in its --help; behind "--" begins another program's line.

_verbena_completion() {
  local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' help i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      --) if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
          else
            mapfile -t COMPREPLY < <(compgen -c -- "$word")
          fi
          return ;;
      -*) ;;
      *) [ -n "$command" ] || [[ ${COMP_WORDS[i-1]} == -* ]] || command=${COMP_WORDS[i]} ;;
    esac
  done
  help=$("$program" ${command:+"$command"} --help 2>/dev/null) || return

  local line values
  if [[ $before == --* ]]; then  # the value of an option: {ethernet,infiniband}, a number in a range, or a file
    line=$(grep -E -- "(^|,) *$before( |\$)" <<<"$help")
    if [[ $line =~ ^\ +$before\ [A-Z]+:\{(.*)\} ]]; then
      mapfile -t COMPREPLY < <(compgen -W "${BASH_REMATCH[1]//,/ }" -- "$word")
      return
    elif [[ $line =~ ^\ +$before\ (FILE|PROFILE|TEXT) ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return
    elif [[ $line =~ ^\ +$before\ [A-Z]+ ]]; then
      return
    fi
  fi
  if [[ $word == -* ]]; then
    values=$(sed -nE 's/^ +(-[a-z], *)?(--[a-z-]+)( .*)?$/\2/p' <<<"$help")
  elif [ -z "$command" ]; then
    values=$(sed -nE '1,/^(Subcommands|SUBCOMMANDS):/d; s/^  ([a-z]+) .*/\1/p; /^$/q' <<<"$help")
  else  # its positional arguments: those with a choice of values
    values=$(sed -nE 's/^  [A-Za-z]+ [A-Z]+:\{(.*)\}.*/\1/p' <<<"$help" | tr , ' ')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}

complete -o default -F _verbena_completion verbena verbs-conformance
