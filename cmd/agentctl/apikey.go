// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
)

const (
	// serviceAccountPrefix begins the user name of a service account.
	serviceAccountPrefix = "system:serviceaccount:"
	// masters is the group of those who may do everything, by which no key may anything.
	masters = "system:masters"
)

// createOptions are the flags of `apikey create`.
type createOptions struct {
	clusterOptions

	displayName, ownerUser, ownerServiceAccount, expires, dryRun, output string
	permissions, environments, ownerGroups                               []string
	narrowPermissions, narrowEnvironments, quiet                         bool
	// master: whoever asks is the owner, and may much by a group that does not count.
	master bool
}

func newAPIKeyCreateCommand() *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key, apply its APIKey object and print the key, once",
		Long: `Make an API key, apply its APIKey object and print the key, once.

The object holds the key's hash only, so that it may lie in Git:
--dry-run=client -o yaml prints it (and the key on standard error) and
changes nothing. It looks up no environments, which need not exist yet:
--environments then takes the names of their objects alone.

The key never may what its owner may not: you, unless --owner-user or
--owner-service-account says otherwise.`,
		Example: `  agentctl apikey create ci -n shop --permissions environments.view,deployments.create
  agentctl apikey create ci -n shop --owner-service-account ci --expires 720h --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.narrowPermissions = cmd.Flags().Changed("permissions")
			o.narrowEnvironments = cmd.Flags().Changed("environments")
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the project; without it that of the context")
	flags.StringVar(&o.displayName, "display-name", "", "name for people")
	flags.StringSliceVar(&o.permissions, "permissions", nil, "what the key may do, such as environments.view; without it all that its owner may, with '' nothing")
	flags.StringSliceVar(&o.environments, "environments", nil,
		"environments that the key reaches, by name, slug or id, with --dry-run=client by the object's name only; without it all, with '' none")
	flags.StringVar(&o.ownerUser, "owner-user", "", "user that the key acts for; without it you")
	flags.StringSliceVar(&o.ownerGroups, "owner-group", nil, "group of --owner-user; may be repeated")
	flags.StringVar(&o.ownerServiceAccount, "owner-service-account", "", "service account of the namespace that the key acts for")
	flags.StringVar(&o.expires, "expires", "", "when the key ends: a duration such as 720h, or a time such as 2030-01-31T00:00:00Z; without it never")
	flags.StringVar(&o.dryRun, "dry-run", "none", "none, or client: change nothing and look up no environments")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print the key and nothing around it")
	flags.StringVarP(&o.output, "output", "o", "", "yaml: print the object too")
	cmd.MarkFlagsMutuallyExclusive("owner-user", "owner-service-account")
	return cmd
}

func (o *createOptions) run(ctx context.Context, name string, out, messages io.Writer) error {
	if o.dryRun != "none" && o.dryRun != "client" {
		return fmt.Errorf("--dry-run=%s: must be none or client", o.dryRun)
	}
	if o.output != "" && o.output != "yaml" {
		return fmt.Errorf("-o %s: must be yaml", o.output)
	}
	cluster := &cluster{options: o.clusterOptions}
	object, key, err := o.object(ctx, cluster, name)
	if err != nil {
		return err
	}
	if o.dryRun == "none" {
		c, err := cluster.client()
		if err != nil {
			return err
		}
		// Not an apply: under the same name another key must not take the place of one.
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating APIKey %s/%s: %w", object.Namespace, name, err)
		}
	}
	if o.master {
		if _, err := fmt.Fprintln(messages, mastersNote(object)); err != nil {
			return fmt.Errorf("printing a note: %w", err)
		}
	}
	if o.dryRun == "client" && len(object.Spec.Environments) > 0 && !o.quiet {
		if _, err := fmt.Fprintln(messages, dryRunNote(object)); err != nil {
			return fmt.Errorf("printing a note: %w", err)
		}
	}
	if o.output == "yaml" || o.dryRun == "client" {
		if err := printObject(out, object); err != nil {
			return err
		}
		out = messages // the manifest alone goes to standard output
	}
	if !o.quiet {
		if _, err := fmt.Fprintln(messages, "The key is shown this once; it is kept nowhere:"); err != nil {
			return fmt.Errorf("printing the key: %w", err)
		}
	}
	if _, err := fmt.Fprintln(out, key); err != nil {
		return fmt.Errorf("printing the key: %w", err)
	}
	return nil
}

// object is the APIKey and the key itself.
func (o *createOptions) object(ctx context.Context, cluster *cluster, name string) (*v1alpha1.APIKey, keys.Key, error) {
	namespace, err := cluster.namespace()
	if err != nil {
		return nil, keys.Key{}, err
	}
	owner, err := o.owner(ctx, cluster, namespace)
	if err != nil {
		return nil, keys.Key{}, err
	}
	expires, err := parseExpiry(o.expires, time.Now())
	if err != nil {
		return nil, keys.Key{}, err
	}
	key := keys.Generate()
	object := &v1alpha1.APIKey{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIKey"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.APIKeySpec{
			DisplayName: v1alpha1.DisplayName(o.displayName), Hash: key.Hash(), KeyID: key.ID(), Owner: owner,
			Access: v1alpha1.AccessAll, EnvironmentAccess: v1alpha1.AccessAll, ExpiresAt: expires,
		},
	}
	if o.narrowPermissions {
		object.Spec.Access = v1alpha1.AccessSelected
		for _, p := range o.permissions {
			object.Spec.Permissions = append(object.Spec.Permissions, v1alpha1.Permission(p))
		}
	}
	if o.narrowEnvironments {
		object.Spec.EnvironmentAccess = v1alpha1.AccessSelected
		if o.dryRun == "client" {
			object.Spec.Environments, err = o.checkedNames()
		} else {
			object.Spec.Environments, err = o.findEnvironments(ctx, cluster, namespace)
		}
		if err != nil {
			return nil, keys.Key{}, err
		}
	}
	return object, key, nil
}

// findEnvironments returns the environments that the flag names, by the names of their objects, as APIKeys have them.
func (o *createOptions) findEnvironments(ctx context.Context, cluster *cluster, namespace string) (names []v1alpha1.EnvironmentName, err error) {
	if len(o.environments) == 0 {
		return nil, nil
	}
	c, err := cluster.client()
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.EnvironmentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the environments that --environments names: %w", err)
	}
	for _, wanted := range o.environments {
		name, err := environmentNamed(wanted, list.Items)
		if err != nil {
			return nil, err
		}
		names = append(names, v1alpha1.EnvironmentName(name))
	}
	return names, nil
}

// checkedNames returns the environments of the flag for a dry run. It asks no cluster, because the environments need
// not exist yet. It rejects IDs, and names for people that no object can have; a slug looks like a name.
func (o *createOptions) checkedNames() (names []v1alpha1.EnvironmentName, err error) {
	for _, wanted := range o.environments {
		problem := ""
		if uuid.Validate(wanted) == nil {
			problem = "is an ID, which --dry-run=client does not look up"
		} else if len(validation.IsDNS1123Label(wanted)) > 0 {
			problem = "is not a name of an Environment object"
		}
		if problem != "" {
			return nil, fmt.Errorf("--environments: %q %s; use its metadata.name, or leave out --dry-run", printable(wanted), problem)
		}
		names = append(names, v1alpha1.EnvironmentName(wanted))
	}
	return names, nil
}

// dryRunNote tells that the environments of a manifest may not exist.
func dryRunNote(key *v1alpha1.APIKey) string {
	return fmt.Sprintf("Note: --environments were not looked up: each must be the metadata.name of an Environment in namespace %s.", key.Namespace)
}

// environmentNamed finds the object of an environment by its name, its id, its slug or its name for people.
func environmentNamed(wanted string, all []v1alpha1.Environment) (string, error) {
	matches := []func(*v1alpha1.Environment) bool{
		func(e *v1alpha1.Environment) bool { return e.Name == wanted },
		func(e *v1alpha1.Environment) bool { return strings.EqualFold(e.Status.ID, wanted) },
		func(e *v1alpha1.Environment) bool { return e.Status.Slug == wanted },
		func(e *v1alpha1.Environment) bool { return e.Title() == wanted },
	}
	for _, is := range matches {
		if wanted == "" {
			break
		}
		var found []string
		for i := range all {
			if is(&all[i]) {
				found = append(found, all[i].Name)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("--environments: %q is more than one; say which by its name: %s", printable(wanted), strings.Join(found, ", "))
		}
	}
	known := make([]named, len(all))
	for i := range all {
		known[i] = named{name: all[i].Name}
	}
	return "", fmt.Errorf("--environments: there is no environment %q; there are: %s",
		printable(wanted), listed(known, func(n named) string { return n.name }))
}

// owner is who the flags name, else whoever asks.
func (o *createOptions) owner(ctx context.Context, cluster *cluster, namespace string) (v1alpha1.KeyOwner, error) {
	switch {
	case o.ownerServiceAccount != "":
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: o.ownerServiceAccount}, nil
	case o.ownerUser != "":
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: o.ownerUser, Groups: o.ownerGroups}, nil
	case len(o.ownerGroups) > 0:
		return v1alpha1.KeyOwner{}, errors.New("--owner-group needs --owner-user")
	}
	c, err := cluster.client()
	if err != nil {
		return v1alpha1.KeyOwner{}, err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return v1alpha1.KeyOwner{}, fmt.Errorf("asking the cluster who you are (or say --owner-user): %w", err)
	}
	who := review.Status.UserInfo
	o.master = slices.Contains(who.Groups, masters)
	if account, ok := strings.CutPrefix(who.Username, serviceAccountPrefix+namespace+":"); ok {
		return v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: account}, nil
	}
	return userOwner(who)
}

// mastersNote tells an administrator of a cluster what else the key needs.
func mastersNote(key *v1alpha1.APIKey) string {
	return fmt.Sprintf("Note: the group %s, by which you may do everything, does not count for keys. Unless you have a role besides, bind one:\n"+
		"  kubectl -n %s create rolebinding %s --clusterrole=agentplatform-admin --user=%q", masters, key.Namespace, key.Name, key.Spec.Owner.Name)
}

// userOwner is a user with the groups that count for a key.
func userOwner(who authenticationv1.UserInfo) (v1alpha1.KeyOwner, error) {
	owner := v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: who.Username}
	for _, group := range who.Groups {
		if !strings.HasPrefix(group, "system:") {
			owner.Groups = append(owner.Groups, group)
		}
	}
	if len(owner.Groups) > v1alpha1.MaxOwnerGroups {
		return v1alpha1.KeyOwner{}, fmt.Errorf("you are in %d groups, and a key acts with %d at most: name yourself by --owner-user, and those that matter by --owner-group",
			len(owner.Groups), v1alpha1.MaxOwnerGroups)
	}
	return owner, nil
}

// parseExpiry reads a duration from now or a time; nil for "".
func parseExpiry(text string, now time.Time) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		period, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("--expires %q: must be a duration such as 720h or a time such as 2030-01-31T00:00:00Z", text)
		}
		at = now.Add(period)
	}
	if !at.After(now) {
		return nil, fmt.Errorf("--expires %q: is in the past", text)
	}
	return &metav1.Time{Time: at.UTC().Truncate(time.Second)}, nil
}

// printObject prints the manifest, without what a cluster adds.
func printObject(out io.Writer, object *v1alpha1.APIKey) error {
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIKey",
		"metadata": map[string]string{"namespace": object.Namespace, "name": object.Name}, "spec": object.Spec,
	})
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	if _, err := out.Write(manifest); err != nil {
		return fmt.Errorf("printing the manifest: %w", err)
	}
	return nil
}
