// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// masked stands in an answer for a value that nobody is shown.
const masked = "********"

// envOptions are the flags of `env` and the commands below it.
type envOptions struct {
	restOptions
	output

	wanted, file string
	sensitive    bool
	// marked: it was said whether they are sensitive.
	marked bool

	api           *rest
	in            io.Reader
	out, messages io.Writer
}

func newEnvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Create an environment; read and change its variables",
		Long: `Create an environment, or read and change the variables of one, which prompts name as {env.NAME} and
connectors as ${NAME}. Nobody is shown the value of a sensitive one; it is ******** then.`,
	}
	cmd.AddCommand(newEnvCreateCommand(), newEnvListCommand(), newEnvGetCommand(), newEnvSetCommand(), newEnvUnsetCommand())
	return cmd
}

// command is one that calls the REST API about an environment.
func (o *envOptions) command(cmd *cobra.Command, do func(ctx context.Context, e environment, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.client(); err != nil {
			return err
		}
		o.in, o.out, o.messages = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		o.marked = cmd.Flags().Changed("sensitive")
		e, err := o.api.environment(cmd.Context(), o.wanted)
		if err != nil {
			return err
		}
		return do(cmd.Context(), e, args)
	}
	o.restOptions.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.wanted, "environment", "", "slug or id of the environment; without it the default one")
	return cmd
}

func newEnvListCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.command(&cobra.Command{
		Use:     "list",
		Short:   "List the variables of an environment",
		Example: "  agentctl env list --environment production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, e environment, _ []string) error { return o.list(ctx, e) })
	o.output.bind(cmd.Flags())
	return cmd
}

func (o *envOptions) list(ctx context.Context, e environment) error {
	known, err := o.api.variables(ctx, e)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.write(o.out, known.list)
	}
	table := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVALUE\tSENSITIVE")
	for _, v := range known.list {
		sensitive := "no"
		if v.Sensitive {
			sensitive = "yes"
		}
		fmt.Fprintln(table, strings.Join([]string{printable(v.Name), clip(printable(v.shown()), 60), sensitive}, "\t"))
	}
	return table.Flush()
}

func newEnvGetCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.command(&cobra.Command{
		Use:     "get NAME",
		Short:   "Print the value of a variable",
		Example: "  agentctl env get REGION --environment production",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, e environment, args []string) error { return o.get(ctx, e, args[0]) })
	o.output.bind(cmd.Flags())
	return cmd
}

func (o *envOptions) get(ctx context.Context, e environment, name string) error {
	known, err := o.api.variables(ctx, e)
	if err != nil {
		return err
	}
	at := find(known.list, name)
	if at < 0 {
		return fmt.Errorf("environment %s has no variable %s; there is %s", e.Slug, printable(name), variableNames(known.list))
	}
	v := known.list[at]
	if o.output != outputText {
		return o.write(o.out, v)
	}
	if v.Sensitive {
		fmt.Fprintf(o.messages, "the variable %s is sensitive: nobody is shown its value\n", v.Name)
	}
	fmt.Fprintln(o.out, v.shown())
	return nil
}

func newEnvSetCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.command(&cobra.Command{
		Use:   "set NAME=VALUE... | NAME",
		Short: "Set variables of an environment",
		Long: `Set variables of an environment; all others stay as they are, whoever changes them
meanwhile. The value of a NAME alone is read from --value-file, else from standard input, so
that it stands in no history of a shell; on a terminal it is asked for. One newline at its end
is none of the value, and one that is empty is refused: NAME= sets an empty one.

A variable that is sensitive stays so, but for --sensitive=false.

No deployment is needed: new runners with the change take the place of those of now, one by
one, and the Environment is Ready again once all have. Connectors in the code that name the
variable have it at once, and tests from the next build on.`,
		Example: `  agentctl env set REGION=eu-west-1 TONE=formal --environment production
  agentctl env set CRM_TOKEN --sensitive --value-file token.txt
  pass show crm | agentctl env set CRM_TOKEN --sensitive`,
		Args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, e environment, args []string) error { return o.set(ctx, e, args) })
	cmd.Flags().BoolVar(&o.sensitive, "sensitive", false, "nobody is shown the value, and no model is told it")
	cmd.Flags().StringVar(&o.file, "value-file", "", "file with the value of the one NAME")
	return cmd
}

func (o *envOptions) set(ctx context.Context, e environment, args []string) error {
	values, err := o.values(args)
	if err != nil {
		return err
	}
	err = o.api.change(ctx, e, func(list []variable) ([]variable, error) {
		for i := range values {
			v := variable{Name: values[i].Name, Value: &values[i].Value, Sensitive: o.sensitive}
			at := find(list, v.Name)
			if at >= 0 && !o.marked {
				v.Sensitive = list[at].Sensitive
			}
			if v.Sensitive && *v.Value == "" {
				return nil, fmt.Errorf("%s: the value of a sensitive variable must not be empty; remove the variable by unset", v.Name)
			}
			if at < 0 {
				list = append(list, v)
				continue
			}
			list[at] = v
		}
		return list, nil
	})
	if err != nil {
		return err
	}
	o.changed(count(len(values), "variable")+" set in ", e)
	return nil
}

// values reads the arguments of `set`.
func (o *envOptions) values(args []string) (values []runnerconfig.Variable, err error) {
	if len(args) == 1 && !strings.Contains(args[0], "=") {
		value, err := o.value(args[0])
		if err != nil {
			return nil, err
		}
		args = []string{args[0] + "=" + value}
	} else if o.file != "" {
		return nil, errors.New("--value-file: is for one NAME without a value")
	}
	for _, text := range args {
		name, value, err := parseVariable(text)
		switch {
		case err != nil:
			given, _, _ := strings.Cut(text, "=")
			return nil, fmt.Errorf("%s: %w", printable(given), err)
		case value == masked:
			return nil, fmt.Errorf("%s: %s stands for a value that is not shown, and is none", name, masked)
		}
		values = append(values, runnerconfig.Variable{Name: name, Value: value})
	}
	if name, problem := runnerconfig.CheckVariables(values); problem != "" {
		return nil, errors.New(strings.TrimSpace(name + " " + problem))
	}
	return values, nil
}

// value is that of the one variable whose argument has none.
func (o *envOptions) value(name string) (string, error) {
	var text []byte
	var err error
	switch in, atKeyboard := o.in.(*keyboard); {
	case o.file != "":
		text, err = os.ReadFile(o.file)
	case atKeyboard:
		fmt.Fprintf(o.messages, "value of %s: ", printable(name))
		text, err = term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(o.messages)
	default:
		text, err = io.ReadAll(io.LimitReader(o.in, runnerconfig.MaxVariable+3)) // so that one that is too long is seen to be
	}
	if err != nil {
		return "", fmt.Errorf("reading the value of %s: %w", printable(name), err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" { // more likely a program that has printed nothing than what is meant
		return "", fmt.Errorf("%[1]s: the value that was read is empty, and nothing is set; %[1]s= sets an empty one, `agentctl env unset %[1]s` removes the variable", printable(name))
	}
	return value, nil
}

// changed says what was done to variables, and when that counts.
func (o *envOptions) changed(done string, e environment) {
	fmt.Fprintf(o.messages, "%s%s\n%s\n", done, e.Slug, inEffect)
}

// inEffect says when a change of variables counts.
const inEffect = "no deployment is needed, but where one has failed without it: new runners with the change take the place of those of now, one by one, unless the environment is suspended; " +
	"runs that begin on them have it"

func newEnvUnsetCommand() *cobra.Command {
	o := &envOptions{}
	return o.command(&cobra.Command{
		Use:     "unset NAME...",
		Short:   "Remove variables of an environment",
		Example: "  agentctl env unset TONE --environment production",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, e environment, args []string) error { return o.unset(ctx, e, args) })
}

func (o *envOptions) unset(ctx context.Context, e environment, names []string) error {
	err := o.api.change(ctx, e, func(list []variable) ([]variable, error) {
		for _, name := range names {
			at := find(list, name)
			if at < 0 {
				return nil, fmt.Errorf("environment %s has no variable %s; there is %s", e.Slug, printable(name), variableNames(list))
			}
			list = append(list[:at], list[at+1:]...)
		}
		return list, nil
	})
	if err != nil {
		return err
	}
	o.changed(count(len(names), "variable")+" removed from ", e)
	return nil
}
