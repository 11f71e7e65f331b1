// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// clusterOptions select the cluster of a command. In a pod without a kubeconfig it is the pod's own cluster.
type clusterOptions struct{ kubeconfig, context, namespace string }

func (o *clusterOptions) bindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig file")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig file")
}

// cluster is the cluster of the kubeconfig. It is contacted only when it is needed, so that a manifest can be printed without
// a cluster.
type cluster struct {
	options clusterOptions
	made    client.Client // nil before the first call of newClient
}

func (c *cluster) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.options.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.options.context})
}

func (c *cluster) namespace() (string, error) {
	if c.options.namespace != "" {
		return c.options.namespace, nil
	}
	namespace, _, err := c.clientConfig().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace from the kubeconfig (or give -n): %w", err)
	}
	return namespace, nil
}

func (c *cluster) newClient() (client.Client, error) {
	if c.made != nil {
		return c.made, nil
	}
	config, err := c.clientConfig().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("creating the scheme: %w", err)
		}
	}
	if c.made, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c.made, nil
}
