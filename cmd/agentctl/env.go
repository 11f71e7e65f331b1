// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/oapi-codegen/nullable"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentplatform/agentplatform/internal/restclient"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// masked replaces a hidden value in responses.
const masked = "********"

// envOptions are the flags of `env` and the commands below it.
type envOptions struct {
	restOptions
	output

	environment, file string
	sensitive         bool
	// sensitiveGiven is true if --sensitive was given, even as false.
	sensitiveGiven bool

	api           *apiClient
	in            io.Reader
	out, messages io.Writer
}

func newEnvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Create an environment; read and change its variables",
		Long: `Create an environment, or read and change its variables. Prompts name a variable as
{env.NAME}, connectors as ${NAME}. The value of a sensitive variable is always shown as
********.`,
	}
	cmd.AddCommand(newEnvCreateCommand(), newEnvListCommand(), newEnvGetCommand(), newEnvSetCommand(), newEnvUnsetCommand())
	return cmd
}

// newCommand completes a command that calls the REST API about an environment.
func (o *envOptions) newCommand(cmd *cobra.Command, run func(ctx context.Context, e restclient.Environment, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.api, err = o.newClient(); err != nil {
			return err
		}
		o.in, o.out, o.messages = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		o.sensitiveGiven = cmd.Flags().Changed("sensitive")
		e, err := o.api.findEnvironment(cmd.Context(), "--environment", o.environment)
		if err != nil {
			return err
		}
		return run(cmd.Context(), e, args)
	}
	o.restOptions.bindFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.environment, "environment", "", "slug or ID of the environment; default: the default environment")
	return cmd
}

func newEnvListCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the variables of an environment",
		Example: "  agentctl env list --environment production",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, e restclient.Environment, _ []string) error { return o.listVariables(ctx, e) })
	o.output.bindFlags(cmd.Flags())
	return cmd
}

func (o *envOptions) listVariables(ctx context.Context, e restclient.Environment) error {
	known, err := o.api.readVariables(ctx, e)
	if err != nil {
		return err
	}
	if o.output != outputText {
		return o.printValue(o.out, known)
	}
	table := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVALUE\tSENSITIVE")
	for _, v := range known.Value {
		sensitive := "no"
		if v.Sensitive {
			sensitive = "yes"
		}
		fmt.Fprintln(table, strings.Join([]string{printable(v.Name), shorten(printable(v.Value), 60), sensitive}, "\t"))
	}
	return table.Flush()
}

func newEnvGetCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:     "get NAME",
		Short:   "Print the value of a variable",
		Example: "  agentctl env get REGION --environment production",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, e restclient.Environment, args []string) error {
		return o.printVariable(ctx, e, args[0])
	})
	o.output.bindFlags(cmd.Flags())
	return cmd
}

func (o *envOptions) printVariable(ctx context.Context, e restclient.Environment, name string) error {
	known, err := o.api.readVariables(ctx, e)
	if err != nil {
		return err
	}
	all, err := restclient.Elements[restclient.Variable](known)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(known.Value, func(v restclient.Variable) bool { return v.Name == name })
	if at < 0 {
		return unknownVariable(e, name, inputNames(asInput(known.Value)))
	}
	if o.output != outputText {
		return o.printValue(o.out, all[at])
	}
	v := known.Value[at]
	if v.Sensitive {
		fmt.Fprintf(o.messages, "the variable %s is sensitive: its value is not shown\n", v.Name)
	}
	fmt.Fprintln(o.out, v.Value)
	return nil
}

func newEnvSetCommand() *cobra.Command {
	o := &envOptions{}
	cmd := o.newCommand(&cobra.Command{
		Use:   "set NAME=VALUE... | NAME",
		Short: "Set variables of an environment",
		Long: `Set variables of an environment. All other variables stay as they are, even if they change
at the same time. The command reads the value of a NAME without =VALUE from --value-file or
from standard input, so that no shell history contains it; on a terminal it asks for the
value. It removes one newline at the end. It rejects an empty value; NAME= sets one.

A sensitive variable stays sensitive, unless you give --sensitive=false.

This needs no deployment: new runners with the change replace the current ones one by one,
and the Environment is Ready again when all are replaced. Connectors in the code that name
the variable have the new value at once, and tests from the next build on.`,
		Example: `  agentctl env set REGION=eu-west-1 TONE=formal --environment production
  agentctl env set CRM_TOKEN --sensitive --value-file token.txt
  pass show crm | agentctl env set CRM_TOKEN --sensitive`,
		Args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, e restclient.Environment, args []string) error {
		return o.setVariables(ctx, e, args)
	})
	cmd.Flags().BoolVar(&o.sensitive, "sensitive", false, "hide the value: neither users nor models see it")
	cmd.Flags().StringVar(&o.file, "value-file", "", "file with the value of the one NAME")
	return cmd
}

func (o *envOptions) setVariables(ctx context.Context, e restclient.Environment, args []string) error {
	values, err := o.parseValues(args)
	if err != nil {
		return err
	}
	err = o.api.changeVariables(ctx, e, func(list []restclient.VariableInput) ([]restclient.VariableInput, error) {
		for i := range values {
			v := restclient.VariableInput{Name: values[i].Name, Value: &values[i].Value, Sensitive: o.sensitive}
			at := indexOfVariable(list, v.Name)
			if at >= 0 && !o.sensitiveGiven {
				v.Sensitive = list[at].Sensitive
			}
			if v.Sensitive && *v.Value == "" {
				return nil, fmt.Errorf("%s: the value of a sensitive variable must not be empty; `agentctl env unset %s` removes the variable", v.Name, v.Name)
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
	o.reportChange(formatCount(len(values), "variable")+" set in ", e)
	return nil
}

// parseValues reads the arguments of `set`.
func (o *envOptions) parseValues(args []string) (values []runnerconfig.Variable, err error) {
	if len(args) == 1 && !strings.Contains(args[0], "=") {
		value, err := o.readValue(args[0])
		if err != nil {
			return nil, err
		}
		args = []string{args[0] + "=" + value}
	} else if o.file != "" {
		return nil, errors.New("--value-file: needs one NAME without =VALUE")
	}
	for _, text := range args {
		name, value, err := parseVariable(text)
		switch {
		case err != nil:
			given, _, _ := strings.Cut(text, "=")
			return nil, fmt.Errorf("%s: %w", printable(given), err)
		case value == masked:
			return nil, fmt.Errorf("%s: %s replaces a hidden value in output, and is no value itself", name, masked)
		}
		values = append(values, runnerconfig.Variable{Name: name, Value: value})
	}
	if name, problem := runnerconfig.CheckVariables(values); problem != "" {
		return nil, errors.New(strings.TrimSpace(name + " " + problem))
	}
	return values, nil
}

// readValue reads the value of a variable from the file, the keyboard or standard input.
func (o *envOptions) readValue(name string) (string, error) {
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
		text, err = io.ReadAll(io.LimitReader(o.in, runnerconfig.MaxVariable+3)) // The size check sees a value that is too long.
	}
	if err != nil {
		return "", fmt.Errorf("reading the value of %s: %w", printable(name), err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" { // The likely reason is a program that failed and printed nothing.
		return "", fmt.Errorf("%[1]s: the value is empty, so nothing was set; %[1]s= sets an empty value, `agentctl env unset %[1]s` removes the variable", printable(name))
	}
	return value, nil
}

// reportChange reports a change of variables, and when it takes effect.
func (o *envOptions) reportChange(change string, e restclient.Environment) {
	fmt.Fprintf(o.messages, "%s%s\n%s\n", change, e.Slug, changeInEffect)
}

// changeInEffect tells when a change of variables takes effect.
const changeInEffect = "no deployment is needed, unless one failed because of a missing variable: new runners with the change replace the current ones one by one, " +
	"unless the environment is suspended; runs that start on them have it"

func newEnvUnsetCommand() *cobra.Command {
	o := &envOptions{}
	return o.newCommand(&cobra.Command{
		Use:     "unset NAME...",
		Short:   "Remove variables of an environment",
		Example: "  agentctl env unset TONE --environment production",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, e restclient.Environment, args []string) error {
		return o.unsetVariables(ctx, e, args)
	})
}

func (o *envOptions) unsetVariables(ctx context.Context, e restclient.Environment, names []string) error {
	err := o.api.changeVariables(ctx, e, func(list []restclient.VariableInput) ([]restclient.VariableInput, error) {
		for _, name := range names {
			at := indexOfVariable(list, name)
			if at < 0 {
				return nil, unknownVariable(e, name, inputNames(list))
			}
			list = append(list[:at], list[at+1:]...)
		}
		return list, nil
	})
	if err != nil {
		return err
	}
	o.reportChange(formatCount(len(names), "variable")+" removed from ", e)
	return nil
}

// envCreateOptions are the flags of `env create`.
type envCreateOptions struct {
	envOptions

	copyFrom, branch, kind string
}

func newEnvCreateCommand() *cobra.Command {
	o := &envCreateOptions{}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an environment",
		Long: `Create an environment, and print its ID. --copy-from copies the variables of another
environment, including the values of sensitive ones, which stay hidden, and its OAuth apps. The
new environment has no deployment.`,
		Example: `  agentctl env create Staging --copy-from production --branch develop
  agentctl promote --from production --to staging`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.api, err = o.newClient(); err != nil {
				return err
			}
			o.out, o.messages = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return o.createEnvironment(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.copyFrom, "copy-from", "", "slug or ID of the environment whose variables and OAuth apps are copied")
	flags.StringVar(&o.branch, "branch", "", "branch to build; default: the default branch of the repository")
	flags.StringVar(&o.kind, "kind", "", "kind of the environment, standard or test; default: standard")
	return cmd
}

func (o *envCreateOptions) createEnvironment(ctx context.Context, name string) error {
	body := restclient.EnvironmentCreate{Name: name}
	if o.copyFrom != "" {
		from, err := o.api.findEnvironment(ctx, "--copy-from", o.copyFrom)
		if err != nil {
			return err
		}
		body.CopyFromEnvironmentID = &from.ID
	}
	if o.branch != "" {
		body.GitBranch = nullable.NewNullableWithValue(o.branch)
	}
	if o.kind != "" {
		body.Kind = new(restclient.EnvironmentKind(o.kind))
	}
	created, err := o.api.CreateEnvironment(ctx, nil, body)
	if err != nil {
		return fmt.Errorf("creating the environment %s: %w", printable(name), err)
	}
	if o.output != outputText {
		return o.printValue(o.out, created)
	}
	// The slug is empty until the platform has taken up the environment.
	fmt.Fprintf(o.messages, "created %s; `agentctl deploy --environment %s` deploys to it\n", printable(name), cmp.Or(created.Value.Slug, created.Value.ID))
	_, err = fmt.Fprintln(o.out, created.Value.ID)
	return err
}
