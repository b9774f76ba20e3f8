// Where the page begins.

import { render } from 'preact';
import './app.css';
import { Page } from './views/page';
import { enter } from './views/sign-in';

const root = document.getElementById('page');
if (root) render(<Page />, root);
void enter();
